! naa: calls functions of network-attached accelerators. Interfaces of naa.h, which says what each function does, and
! a few procedures that spare Fortran programs the conversions:
!
!   naa_connect(session, address, regions [, options])   naa_session_connect with a Fortran text and array
!   naa_region_of(array, flags)                          a region of an array: NAA_INPUT, NAA_OUTPUT, NAA_INOUT ...
!   naa_code_of(name)                                    the code of a function that NAAICE or naa serve has; 0: none
!   naa_find(session, name, code)                        naa_session_find_function with a Fortran text: kernels too
!   naa_text_of(address)                                 a text that C has, such as name of a naa_function
!   naa_error_text()                                     what went wrong last on this thread
!   naa_name_of(result)                                  "NAA_ERROR_GONE"
!
! Arrays of regions need the TARGET attribute and must stay allocated until naa_session_close; arrays that other work
! touches while a call runs need ASYNCHRONOUS too. Two-dimensional arrays are in Fortran's order, by columns.
!
! Build: gfortran program.f90 naa.f90 $(pkg-config --libs naa)
module naa
    use, intrinsic :: iso_c_binding
    implicit none
    public

    integer(c_int32_t), parameter :: NAA_INPUT = 1
    integer(c_int32_t), parameter :: NAA_OUTPUT = 2
    integer(c_int32_t), parameter :: NAA_INOUT = 3
    integer(c_int32_t), parameter :: NAA_SINGLE_SEND = 4
    integer(c_int32_t), parameter :: NAA_INTERNAL = 8

    integer(c_int32_t), parameter :: NAA_PROVIDER_DEFAULT = 0
    integer(c_int32_t), parameter :: NAA_PROVIDER_VERBS = 1
    integer(c_int32_t), parameter :: NAA_PROVIDER_EMBEDDED = 2

    integer(c_int32_t), parameter :: NAA_WAIT_ADAPTIVE = 0
    integer(c_int32_t), parameter :: NAA_WAIT_SPIN = 1
    integer(c_int32_t), parameter :: NAA_WAIT_BLOCK = 2

    integer(c_int32_t), parameter :: NAA_DIALECT_MAIN = 0
    integer(c_int32_t), parameter :: NAA_DIALECT_NEXT = 1

    integer(c_int32_t), parameter :: NAA_LAYOUT_SYMMETRIC = 0
    integer(c_int32_t), parameter :: NAA_LAYOUT_ASYMMETRIC = 1
    integer(c_int32_t), parameter :: NAA_LAYOUT_GATHERED = 2
    integer(c_int32_t), parameter :: NAA_LAYOUT_PACKED = 3
    integer(c_int32_t), parameter :: NAA_LAYOUT_AUTO = 4

    integer(c_int32_t), parameter :: NAA_SESSION_IDLE = 0
    integer(c_int32_t), parameter :: NAA_SESSION_RUNNING = 1
    integer(c_int32_t), parameter :: NAA_SESSION_OVER = 2

    ! Of naa_call_wait_any, whose index counts from 0.
    integer(c_int64_t), parameter :: NAA_UNDEFINED = -1

    integer(c_size_t), parameter :: NAA_BLOCK_BYTES = 64

    integer(c_int32_t), parameter :: NAA_OK = 0
    integer(c_int32_t), parameter :: NAA_ERROR_ARGUMENT = -1
    integer(c_int32_t), parameter :: NAA_ERROR_STATE = -2
    integer(c_int32_t), parameter :: NAA_ERROR_ENVIRONMENT = -3
    integer(c_int32_t), parameter :: NAA_ERROR_DEVICE = -4
    integer(c_int32_t), parameter :: NAA_ERROR_UNREACHABLE = -5
    integer(c_int32_t), parameter :: NAA_ERROR_REFUSED = -6
    integer(c_int32_t), parameter :: NAA_ERROR_TIMEOUT = -7
    integer(c_int32_t), parameter :: NAA_ERROR_PEER = -8
    integer(c_int32_t), parameter :: NAA_ERROR_GONE = -9
    integer(c_int32_t), parameter :: NAA_ERROR_MEMORY = -10
    integer(c_int32_t), parameter :: NAA_ERROR_FUNCTION = -11
    integer(c_int32_t), parameter :: NAA_ERROR_OVER = -12
    integer(c_int32_t), parameter :: NAA_ERROR_INTERNAL = -13

    type, bind(c) :: naa_region
        type(c_ptr) :: addr = c_null_ptr
        integer(c_int64_t) :: size = 0
        integer(c_int32_t) :: flags = 0
    end type

    ! As it is made, all stands for its default: set what shall be different.
    type, bind(c) :: naa_options
        integer(c_int32_t) :: struct_size = 48
        integer(c_int32_t) :: provider = NAA_PROVIDER_DEFAULT
        type(c_ptr) :: local_address = c_null_ptr
        integer(c_int32_t) :: setup_timeout_ms = 0
        integer(c_int32_t) :: probe_interval_ms = 0
        integer(c_int32_t) :: silence_ms = 0
        integer(c_int32_t) :: wait = NAA_WAIT_ADAPTIVE
        integer(c_int32_t) :: dialect = NAA_DIALECT_MAIN
        integer(c_int32_t) :: layout = NAA_LAYOUT_SYMMETRIC
        integer(c_int32_t) :: packed_bytes = 0
        integer(c_int32_t) :: call_timeout_ms = 0
    end type

    type, bind(c) :: naa_outcome
        integer(c_int32_t) :: result
        integer(c_int32_t) :: function
        integer(c_int32_t) :: return_code
        integer(c_int32_t) :: user
        integer(c_int64_t) :: last_output_bytes
        integer(c_int64_t) :: detail
        integer(c_int64_t) :: produced(6)
    end type

    ! naa_session_functions gives an array of these: c_f_pointer(first, functions, [count]).
    type, bind(c) :: naa_function
        integer(c_int32_t) :: code
        type(c_ptr) :: name
        type(c_ptr) :: parameters
        type(c_ptr) :: description
    end type

    ! As in naa.h. Texts end with c_null_char. What is optional here may be NULL there.
    interface
        function naa_version() bind(c) result(text)
            import
            type(c_ptr) :: text
        end function

        function naa_last_error() bind(c) result(text)
            import
            type(c_ptr) :: text
        end function

        function naa_result_name(number) bind(c) result(text)
            import
            integer(c_int32_t), value :: number
            type(c_ptr) :: text
        end function

        function naa_function_code(name) bind(c) result(code)
            import
            character(kind=c_char), intent(in) :: name(*)
            integer(c_int32_t) :: code
        end function

        function naa_options_init(options, size) bind(c) result(done)
            import
            type(naa_options), intent(out) :: options
            integer(c_size_t), value :: size
            integer(c_int32_t) :: done
        end function

        function naa_session_connect(address, regions, count, options, session) bind(c) result(done)
            import
            character(kind=c_char), intent(in) :: address(*)
            type(naa_region), intent(in) :: regions(*)
            integer(c_size_t), value :: count
            type(naa_options), intent(in), optional :: options
            type(c_ptr), intent(out) :: session
            integer(c_int32_t) :: done
        end function

        function naa_session_connect_spec(function_code, regions, count, options, session) bind(c) result(done)
            import
            integer(c_int32_t), value :: function_code
            type(naa_region), intent(in) :: regions(*)
            integer(c_size_t), value :: count
            type(naa_options), intent(in), optional :: options
            type(c_ptr), intent(out) :: session
            integer(c_int32_t) :: done
        end function

        function naa_session_close(session) bind(c) result(done)
            import
            type(c_ptr), value :: session
            integer(c_int32_t) :: done
        end function

        function naa_session_state(session, state) bind(c) result(done)
            import
            type(c_ptr), value :: session
            integer(c_int32_t), intent(inout) :: state
            integer(c_int32_t) :: done
        end function

        function naa_session_describe(session) bind(c) result(text)
            import
            type(c_ptr), value :: session
            type(c_ptr) :: text
        end function

        function naa_session_fd(session, fd) bind(c) result(done)
            import
            type(c_ptr), value :: session
            integer(c_int32_t), intent(inout) :: fd
            integer(c_int32_t) :: done
        end function

        function naa_session_functions(session, functions, count) bind(c) result(done)
            import
            type(c_ptr), value :: session
            type(c_ptr), intent(inout) :: functions
            integer(c_size_t), intent(inout) :: count
            integer(c_int32_t) :: done
        end function

        function naa_session_find_function(session, name, function_code) bind(c) result(done)
            import
            type(c_ptr), value :: session
            character(kind=c_char), intent(in) :: name(*)
            integer(c_int32_t), intent(inout) :: function_code
            integer(c_int32_t) :: done
        end function

        ! Regions count from 0.
        function naa_session_set_range(session, region, offset, bytes) bind(c) result(done)
            import
            type(c_ptr), value :: session
            integer(c_size_t), value :: region
            integer(c_int64_t), value :: offset, bytes
            integer(c_int32_t) :: done
        end function

        function naa_session_set_range_all(session, region) bind(c) result(done)
            import
            type(c_ptr), value :: session
            integer(c_size_t), value :: region
            integer(c_int32_t) :: done
        end function

        function naa_call_start(session, function_code, user) bind(c) result(done)
            import
            type(c_ptr), value :: session
            integer(c_int32_t), value :: function_code, user
            integer(c_int32_t) :: done
        end function

        function naa_call_test(session, ended, outcome) bind(c) result(done)
            import
            type(c_ptr), value :: session
            logical(c_bool), intent(inout) :: ended
            type(naa_outcome), intent(inout), optional :: outcome
            integer(c_int32_t) :: done
        end function

        function naa_call_wait(session, timeout_ms, outcome) bind(c) result(done)
            import
            type(c_ptr), value :: session
            integer(c_int32_t), value :: timeout_ms
            type(naa_outcome), intent(inout), optional :: outcome
            integer(c_int32_t) :: done
        end function

        function naa_call(session, function_code, user, timeout_ms, outcome) bind(c) result(done)
            import
            type(c_ptr), value :: session
            integer(c_int32_t), value :: function_code, user, timeout_ms
            type(naa_outcome), intent(inout), optional :: outcome
            integer(c_int32_t) :: done
        end function

        function naa_call_wait_any(sessions, count, timeout_ms, index, outcome) bind(c) result(done)
            import
            type(c_ptr), intent(in) :: sessions(*)
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: timeout_ms
            integer(c_int64_t), intent(inout) :: index
            type(naa_outcome), intent(inout), optional :: outcome
            integer(c_int32_t) :: done
        end function

        function naa_call_wait_all(sessions, count, timeout_ms, outcomes) bind(c) result(done)
            import
            type(c_ptr), intent(in) :: sessions(*)
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: timeout_ms
            type(naa_outcome), intent(inout), optional :: outcomes(*)
            integer(c_int32_t) :: done
        end function

        function naa_buffer_alloc(size, buffer) bind(c) result(done)
            import
            integer(c_int64_t), value :: size
            type(c_ptr), intent(out) :: buffer
            integer(c_int32_t) :: done
        end function

        function naa_buffer_wrap(addr, size, buffer) bind(c) result(done)
            import
            type(c_ptr), value :: addr
            integer(c_int64_t), value :: size
            type(c_ptr), intent(out) :: buffer
            integer(c_int32_t) :: done
        end function

        function naa_buffer_data(buffer) bind(c) result(addr)
            import
            type(c_ptr), value :: buffer
            type(c_ptr) :: addr
        end function

        function naa_buffer_size(buffer) bind(c) result(bytes)
            import
            type(c_ptr), value :: buffer
            integer(c_int64_t) :: bytes
        end function

        function naa_buffer_free(buffer) bind(c) result(done)
            import
            type(c_ptr), value :: buffer
            integer(c_int32_t) :: done
        end function

        function naa_arguments(block, function_code, values, count) bind(c) result(done)
            import
            integer(c_int8_t), intent(inout) :: block(NAA_BLOCK_BYTES)
            integer(c_int32_t), value :: function_code
            integer(c_int64_t), intent(in) :: values(*)
            integer(c_size_t), value :: count
            integer(c_int32_t) :: done
        end function
    end interface

    ! A region of an array of any rank that is contiguous. Of another it has no address, which naa_connect refuses.
    interface naa_region_of
        module procedure region_of_int8, region_of_int32, region_of_int64, region_of_float, region_of_double
        module procedure region_of_float_complex, region_of_double_complex
    end interface

    private :: region_of_int8, region_of_int32, region_of_int64, region_of_float, region_of_double
    private :: region_of_float_complex, region_of_double_complex, region_at

contains

    function naa_connect(session, address, regions, options) result(done)
        type(c_ptr), intent(out) :: session
        character(*), intent(in) :: address
        type(naa_region), intent(in) :: regions(:)
        type(naa_options), intent(in), optional :: options
        integer(c_int32_t) :: done

        done = naa_session_connect(trim(address)//c_null_char, regions, size(regions, kind=c_size_t), options, session)
    end function

    function naa_code_of(name) result(code)
        character(*), intent(in) :: name
        integer(c_int32_t) :: code

        code = naa_function_code(trim(name)//c_null_char)
    end function

    function naa_find(session, name, code) result(done)
        type(c_ptr), intent(in) :: session
        character(*), intent(in) :: name
        integer(c_int32_t), intent(inout) :: code
        integer(c_int32_t) :: done

        done = naa_session_find_function(session, trim(name)//c_null_char, code)
    end function

    function naa_error_text() result(text)
        character(:), allocatable :: text

        text = naa_text_of(naa_last_error())
    end function

    function naa_name_of(number) result(text)
        integer(c_int32_t), intent(in) :: number
        character(:), allocatable :: text

        text = naa_text_of(naa_result_name(number))
    end function

    ! What C has at an address, up to its zero; "" where there is nothing.
    function naa_text_of(address) result(text)
        type(c_ptr), intent(in) :: address
        character(:), allocatable :: text
        character(kind=c_char), pointer :: letters(:)
        integer :: length, i

        interface
            function strlen(text) bind(c) result(length)
                import
                type(c_ptr), value :: text
                integer(c_size_t) :: length
            end function
        end interface

        length = 0
        if (c_associated(address)) length = int(strlen(address))
        allocate (character(length) :: text)
        if (length == 0) return
        call c_f_pointer(address, letters, [length])
        do i = 1, length
            text(i:i) = letters(i)
        end do
    end function

    function region_at(address, bytes, contiguous, flags) result(region)
        type(c_ptr), intent(in) :: address
        integer(c_int64_t), intent(in) :: bytes
        logical, intent(in) :: contiguous
        integer(c_int32_t), intent(in) :: flags
        type(naa_region) :: region

        region = naa_region(c_null_ptr, bytes, flags)
        if (contiguous) region%addr = address
    end function

    function region_of_int8(array, flags) result(region)
        integer(c_int8_t), intent(in), target :: array(..)
        integer(c_int32_t), intent(in) :: flags
        type(naa_region) :: region

        region = region_at(c_loc(array), size(array, kind=c_int64_t), is_contiguous(array), flags)
    end function

    function region_of_int32(array, flags) result(region)
        integer(c_int32_t), intent(in), target :: array(..)
        integer(c_int32_t), intent(in) :: flags
        type(naa_region) :: region

        region = region_at(c_loc(array), 4*size(array, kind=c_int64_t), is_contiguous(array), flags)
    end function

    function region_of_int64(array, flags) result(region)
        integer(c_int64_t), intent(in), target :: array(..)
        integer(c_int32_t), intent(in) :: flags
        type(naa_region) :: region

        region = region_at(c_loc(array), 8*size(array, kind=c_int64_t), is_contiguous(array), flags)
    end function

    function region_of_float(array, flags) result(region)
        real(c_float), intent(in), target :: array(..)
        integer(c_int32_t), intent(in) :: flags
        type(naa_region) :: region

        region = region_at(c_loc(array), 4*size(array, kind=c_int64_t), is_contiguous(array), flags)
    end function

    function region_of_double(array, flags) result(region)
        real(c_double), intent(in), target :: array(..)
        integer(c_int32_t), intent(in) :: flags
        type(naa_region) :: region

        region = region_at(c_loc(array), 8*size(array, kind=c_int64_t), is_contiguous(array), flags)
    end function

    function region_of_float_complex(array, flags) result(region)
        complex(c_float), intent(in), target :: array(..)
        integer(c_int32_t), intent(in) :: flags
        type(naa_region) :: region

        region = region_at(c_loc(array), 8*size(array, kind=c_int64_t), is_contiguous(array), flags)
    end function

    function region_of_double_complex(array, flags) result(region)
        complex(c_double), intent(in), target :: array(..)
        integer(c_int32_t), intent(in) :: flags
        type(naa_region) :: region

        region = region_at(c_loc(array), 16*size(array, kind=c_int64_t), is_contiguous(array), flags)
    end function
end module
